"""The rollout log: what the model wrote at each step, kept as Parquet files, and asked with DuckDB.

Nothing here is loaded unless the setting ``rollout_dir`` is set; pyarrow and duckdb come with the extra ``rollouts``.
"""
