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
    "acknowledged: {title}": "已认领：{title}",
    "still firing: {title}": "仍未恢复：{title}",
    "Run": "训练",
    "{run}, attempt {attempt}": "{run}，attempt {attempt}",
    "Incident": "事件",
    "{incident}, opened at step {step}": "{incident}，第 {step} 步报出",
    "First sign": "最早信号",
    "{rule} on {metric}": "{rule}，指标 {metric}",
    "Onset": "起始",
    "step {step}": "第 {step} 步",
    "Last good step": "最后正常步",
    "none: wrong from the start": "无：从一开始就不正常",
    "Resolved": "解除",
    "at step {step}": "第 {step} 步",
    "Acknowledged": "认领",
    "by {author}": "{author}",
    "Nobody has acknowledged it.": "尚无人认领。",
    "Numbers": "数值",
    "What it means": "含义",
    "Acknowledge": "认领",
    "Silence": "静默",
    "Acknowledge or silence": "认领或静默",
    "Dashboard": "看板",
    "curves and evidence": "曲线与依据",
    "What the model wrote": "模型写了什么",
    "samples at the onset and before it": "起始处与之前的样本",
    "{numbers} — {rule}, since step {step}": "{numbers} — {rule}，自第 {step} 步起",
    "baseline {value}": "基线 {value}",
    "limit {value}": "阈值 {value}",
    "… and {count} more": "… 另有 {count} 条",
    # A summary of many
    "{count} incidents of {runs} runs": "{runs} 个训练的 {count} 个事件",
    "News": "消息",
    "opened": "新发生",
    "escalated": "恶化",
    "acknowledged": "已认领",
    "reminded": "提醒",
    "resolved": "已解除",
    "changed": "有变化",
    "Rules": "规则",
    "Runs": "训练",
    "(and {count} more)": "（另有 {count} 条）",
    "All of them": "全部",
    "the dashboard": "看板",
    # The page of an incident
    "attempt {number}": "attempt {number}",
    "It is going on.": "仍在持续。",
    "It is over.": "已经结束。",
    "{author} looks after it since {time}.": "{author} 自 {time} 起负责处理。",
    "“{comment}”": "“{comment}”",
    "Silent until {time}, says {author}: “{comment}”": "静默至 {time}，{author}：“{comment}”",
    "Says that you look after it: whoever was told hears so, and nobody is reminded any more.": (
        "表示由你负责处理：收到过消息的人会得知，并且不再提醒。"
    ),
    "Until then nobody is told. What still fires afterwards is told then.": (
        "在此之前不通知任何人。之后若仍在报警，届时再通知。"
    ),
    "What": "对象",
    "in this run: {rules}": "此训练的：{rules}",
    "all of this run": "整个训练",
    "How long": "时长",
    "1 hour": "1 小时",
    "4 hours": "4 小时",
    "1 day": "1 天",
    "1 week": "1 周",
    "Your name": "你的名字",
    "Comment": "备注",
    "Why": "原因",
    "This is the new normal": "设为新的正常水平",
    "Forgets what was normal for {metrics} and learns it anew from here: only if the change is meant. "
    "Until it is learnt, nothing is said of these metrics. This can't be undone.": (
        "忘记 {metrics} 原先的正常水平，从现在起重新学习：仅当变化是有意为之。"
        "学会之前不会就这些指标报警。此操作无法撤销。"
    ),
    "Nothing was done:": "未执行任何操作：",
    "Done: whoever was told of it hears that you look after it.": "完成：收到过消息的人会得知由你负责处理。",
    "Done: nobody is told of it until the silence ends.": "完成：静默结束前不通知任何人。",
    "Done: what is now is the new normal. What was raised by these metrics ends in a moment.": (
        "完成：现在的水平即为新的正常水平。由这些指标引起的报警稍后结束。"
    ),
    "There are no links here.": "此服务没有链接。",
    "The service has no public_url and link_secret.": "服务没有设置 public_url 和 link_secret。",
    "This link has expired, or a part of it is missing.": "此链接已过期，或不完整。",
    "Links are good for two weeks. Open the one in the latest message of the incident, or use the command: "
    "tocsin incidents, tocsin acknowledge, tocsin silence.": (
        "链接有效期为两周。请打开该事件最新消息中的链接，或使用命令："
        "tocsin incidents、tocsin acknowledge、tocsin silence。"
    ),
    "This incident is not known any more.": "此事件已不存在。",
    "Its run is gone, or was judged anew by other rules.": "其训练已被删除，或已按其他规则重新判断。",
    # Families of metrics that have no rules
    "Progress": "训练进度",
    "Other metrics": "其他指标",
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
