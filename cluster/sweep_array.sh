#!/usr/bin/env bash
# A sweep as a Slurm job array, one part of the points a task, and a job that puts the parts together:
#
#     cluster/sweep_array.sh scenarios/sweep.json sweep.result.json 16 [sbatch options, such as -p short]
#
# Needs no MPI. Run it again with the same words after tasks have failed: parts that are done are kept,
# others go on where they were.
set -euo pipefail

if (($# < 3)); then
  printf 'usage: %s SCENARIO RESULT PARTS [SBATCH OPTION...]\n' "$0" >&2
  exit 2
fi
scenario=$(realpath "$1") result=$(realpath "$2") parts=$3
shift 3
stepcast=$(realpath "${STEPCAST:-$(dirname "${BASH_SOURCE[0]}")/../build/release/stepcast}")
folder=$result.parts
mkdir -p "$folder"

# Slurm copies what it runs, so the words are written into it.
printf -v words '%q ' "$stepcast" run "$scenario"
array=$(sbatch --parsable --job-name=stepcast --array="1-$parts" --output="$folder/%a.log" "$@" <<END
#!/usr/bin/env bash
part=$(printf '%q' "$folder")/\$SLURM_ARRAY_TASK_ID.part
[[ ! -e \$part ]] || exit 0
resume=()
[[ ! -e \$part.part ]] || resume=(--resume)
$words --shard "\$SLURM_ARRAY_TASK_ID/$parts" -o "\$part" --jobs "\${SLURM_CPUS_PER_TASK:-1}" "\${resume[@]}"
END
)
array=${array%%;*}  # a cluster's name may follow

# After all of them, whether they went well or not: merge says what is missing.
printf -v words '%q ' "$stepcast" merge
merge=$(sbatch --parsable --job-name=stepcast-merge --dependency="afterany:$array" \
  --output="$folder/merge.log" "$@" --cpus-per-task=1 <<END
#!/usr/bin/env bash
$words $(printf '%q' "$folder")/*.part -o $(printf '%q' "$result")
END
)
printf 'array job %s, merge job %s, logs in %s\n' "$array" "${merge%%;*}" "$folder"
