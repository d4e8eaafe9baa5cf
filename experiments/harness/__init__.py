"""What experiments share: tasks, methods, jobs, records, statistics and tables."""
