"""Types that a run has shown, and the source that gets them as annotations."""
