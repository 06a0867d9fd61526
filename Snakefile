# The workflow is in workflow/, where the Snakemake workflow catalog looks for it.
include: "workflow/Snakefile"
