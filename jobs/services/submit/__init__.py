"""Taking work in: files, batches and single jobs, checked and prepared."""
