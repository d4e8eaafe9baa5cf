"""Files of tables: trained models as folders, and tables as CSV or Parquet."""
