#!/bin/sh
# Compiles a precompiled header (or the source of its target) with the command that follows. Removes the old one first: the
# preprocessor that ccache runs would read it instead of the changed headers, and ccache would find the result of another
# change.
output=
previous=
for argument in "$@"; do
  if [ "$previous" = -o ]; then output=$argument; fi
  previous=$argument
done
if [ -n "$output" ]; then rm -f "$output"; fi
exec "$@"
