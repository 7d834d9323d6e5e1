"""What can be done to a table: a folder an action, which holds its arguments, plan items, plan(), apply() and report.

A folder's ``ACTION`` imports the working modules when they are needed only, so that listing actions and flags costs nothing.
A new action is a new folder and its name in `lsm_core.maintenance.action.BUILT_IN`.
"""
