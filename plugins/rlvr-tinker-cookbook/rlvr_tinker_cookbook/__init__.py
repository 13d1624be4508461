"""tinker-cookbook and rlvr together: imports nothing until a part is used.

`rlvr_tinker_cookbook.dataset:TaskDatasetBuilder` gives our tasks to the cookbook's loops;
`rlvr_tinker_cookbook.task:CookbookTask` gives the cookbook's environments to ours.
"""
