"""What the ranks of a job did beside each other, and beside the schedule that was expected of them."""
