#!/bin/sh
# Says which Chromium the browser tests use; installs Debian's where this is possible, and tells what to do where not.
for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome; do
  [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 && { echo "browser: $(command -v "$name")"; exit 0; }
done
[ -x "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" ] && { echo "browser: Google Chrome.app"; exit 0; }
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
  echo "browser: installing Debian's Chromium"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; } >/dev/null 2>&1
  command -v chromium >/dev/null 2>&1 && exit 0
fi
echo "No Chromium was found: install it (Debian: apt-get install chromium) or set CHROMIUM to its path." >&2
exit 2
