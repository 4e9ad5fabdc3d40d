"""How a script runs as one rank on this machine: torchrun's environment, devices that are not there.

a script                   program, overlay, no_run, blame, user_warnings, thread_errors
its ranks                  torchrun, launcher, program_ranks, worker_pool, kept_process, forking
devices                    accelerators/
what is changed in it      attribute_patch, backward_modes, interpreter_state, module_loading, module_calls
what its text says         bound_values, reached_comments, number_calls
"""
