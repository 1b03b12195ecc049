"""The fixed words around alerts, in the terminal and in messages. English is written where it is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tocsin_detectors.texts import Language

__all__ = ["CHINESE", "Words"]

CHINESE: Mapping[str, str] = {
    # Severities and reasons of an end
    "critical": "严重",
    "warning": "警告",
    "info": "提示",
    "recovered": "已恢复",
    "new level": "已成为新的水平",
    "resumed": "训练从 checkpoint 恢复",
    "rebaselined": "基线已重置",
    "reconfigured": "配置已变更",
    # The verdict on a log file
    ", ": "，",
    ": ": "：",
    "quiet": "正常",
    "{count} vectors": "{count} 个向量",
    "{count} attempts": "{count} 个 attempt",
    "no steps": "没有任何步",
    "steps {first} to {last}": "第 {first} 至 {last} 步",
    # A page with curves
    "onset": "起始",
    "said": "报出",
    "baseline": "基线",
    "limit": "阈值",
    # An incident in the terminal
    "since step {step}": "自第 {step} 步起",
    "said at step {step}": "第 {step} 步报出",
    "over at step {step}": "第 {step} 步结束",
    "last good step: {step}": "最后正常步：{step}",
    "{reason} at step {step}": "第 {step} 步{reason}",
    "{rule} ({severity}) on {metric}, step {onset} -> {fired}": (
        "{rule}（{severity}），指标 {metric}，第 {onset} -> {fired} 步"
    ),
    "Meaning: ": "含义：",
    "Runbook: ": "手册：",
    # A message
    "worse: {title}": "恶化：{title}",
    "resolved: {title}": "已解除：{title}",
    "{title} — run {run}, step {step}": "{title} — 训练 {run}，第 {step} 步",
    "*Run* {run}, attempt {attempt}": "*训练* {run}，attempt {attempt}",
    "*First sign* {rule} on {metric}": "*最早信号* {rule}，指标 {metric}",
    "*Onset* step {step}": "*起始* 第 {step} 步",
    "*Last good step* {step}": "*最后正常步* {step}",
    "none: wrong from the start": "无：从一开始就不正常",
    "*Resolved* at step {step}": "*解除* 第 {step} 步",
    "*Runbook* {link}": "*手册* {link}",
    "*Numbers*": "*数值*",
    "*What it means*": "*含义*",
    "*What to do*": "*处置建议*",
    "{numbers} — {rule}, since step {step}": "{numbers} — {rule}，自第 {step} 步起",
    "baseline {value}": "基线 {value}",
    "limit {value}": "阈值 {value}",
    "… and {count} more": "… 另有 {count} 条",
    # A rule explained
    "Severity": "级别",
    "{severity} at first": "初始为{severity}",
    "Family": "类别",
    "Metrics": "指标",
    "Fires": "触发",
    "{signs} signs among {among} values; over after {recovery} clear values": (
        "{among} 个值中有 {signs} 个信号；连续 {recovery} 个正常值后结束"
    ),
    "Test": "检验",
    "Source": "来源",
    "Runbook": "手册",
    "Meaning": "含义",
    "What to do": "处置建议",
}


@dataclass(frozen=True, slots=True)
class Words:
    """Says phrases in a language: ``say = Words("zh"); say("since step {step}", step=3)``."""

    lang: Language = "en"

    def __call__(self, phrase: str, **values: object) -> str:
        """The phrase in this language, with its values; one that nobody has translated stays as it is."""
        told = CHINESE.get(phrase, phrase) if self.lang == "zh" else phrase
        return told.format(**values) if values else told
