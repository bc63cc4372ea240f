"""Testing jobs without a cluster."""

from penstock.testing.job_tester import JobCrashed, JobTester

__all__ = ["JobTester", "JobCrashed"]
