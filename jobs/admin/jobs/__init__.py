"""Jobs: their list, each job's page with its timeline, and what a person may do with jobs."""
