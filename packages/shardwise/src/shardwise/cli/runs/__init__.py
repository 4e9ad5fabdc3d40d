"""How a command runs a program and ends: one rank or several, recorded, watched, fixed, with progress.

what is asked              asked_check, asked_verify
one rank, several, again   run, ranks, launched, and the folder further
how it ends                ending, guard, streams
while it runs              progress, watching
what is shown of it        screen, report_forms, shown_run, schedule, infer_report
edits                      fix_search, fixing, command_run, sarif_fixes, infer_edits
"""
