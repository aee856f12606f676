# What the worker of bridge.py runs for each task: the task comes on stdin, what is printed becomes updates.
# $FOLDER is where bridge.py looks.
task=$(cat)
env > "$FOLDER/environment"
case $task in
    errand*)
        printf '\n\nstep 1\n'
        until [ -e "$FOLDER/go" ]; do sleep 0.05; done
        echo "step 2"
        answer=$("$NEXUS_BIN" agent ask "Which disk?") || exit 4
        echo "told: $answer"
        ;;
    hang*)
        echo $$ > "$FOLDER/hang.pid"
        echo "hanging"
        while :; do sleep 1; done
        ;;
    fail*)
        echo "it does not work" >&2
        exit 3
        ;;
    *) echo "done: $task" ;;
esac
