package kernel

import (
	"regexp"
	"strconv"
	"strings"
)

// Error is how a cell failed, as the language has it.
type Error struct{ Name, Value, Traceback string }

// exitCode is that of a process that ends with such an error.
func (e Error) exitCode() int {
	switch e.Name {
	case "SystemExit":
		if e.isQuiet() {
			code, _ := strconv.Atoi(e.Value) // of None and nothing it is 0
			return code & 0xff
		}
	case "KeyboardInterrupt":
		return 128 + 2
	}
	return 1
}

// isQuiet says whether an exit has a number, or nothing to say.
func (e Error) isQuiet() bool {
	_, err := strconv.Atoi(e.Value)
	return err == nil || e.Value == "" || e.Value == "None"
}

// colours are what terminals show as such.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// shown is what a process would print at its end. A cell of our own, which is no part of
// the code, is shown as the call that it makes.
func (e Error) shown(own string) string {
	text := strings.TrimRight(colours.ReplaceAllString(e.Traceback, ""), "\n")
	if own != "" {
		text = strings.ReplaceAll(text, own, "main(…)")
	}
	switch {
	case e.Name == "SystemExit" && e.isQuiet():
		return ""
	case e.Name == "SystemExit":
		text = e.Value
	case text == "" && e.Name != "":
		text = e.Name + ": " + e.Value
	}
	if text == "" {
		return ""
	}
	return text + "\n"
}
