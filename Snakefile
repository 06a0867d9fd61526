# The workflow is in workflow/, where the Snakemake workflow catalog looks for it.
include: "workflow/Snakefile"


rule default:
    """What is made without a target: the same as by `all`, whose own mark an `include` leaves behind."""
    default_target: True
    input:
        rules.all.input,
