package main

import (
	"os"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// interpreters are what this provider can run, and where it must be on this machine.
var interpreters = []struct {
	language sdk.Language
	path     string
}{
	{sdk.Python, "/usr/bin/python3"},
	{sdk.JavaScript, "/usr/bin/node"},
	{sdk.Bash, "/usr/bin/bash"},
}

// installed returns the languages whose interpreter is there.
func installed() []sdk.Language {
	var found []sdk.Language
	for _, i := range interpreters {
		if _, err := os.Stat(i.path); err == nil {
			found = append(found, i.language)
		}
	}
	return found
}
