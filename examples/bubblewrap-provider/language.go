package main

import (
	"os/exec"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// interpreter runs the code of a language, from a file.
type interpreter struct {
	language sdk.Language
	argv     []string
	file     string
}

var interpreters = []interpreter{
	{sdk.Python, []string{"/usr/bin/python3"}, "main.py"},
	{sdk.JavaScript, []string{"/usr/bin/node"}, "main.js"},
	{sdk.Bash, []string{"/usr/bin/bash"}, "main.sh"},
}

// installedLanguages are those whose interpreter this machine has.
func installedLanguages() []sdk.Language {
	var found []sdk.Language
	for _, i := range interpreters {
		if _, err := exec.LookPath(i.argv[0]); err == nil {
			found = append(found, i.language)
		}
	}
	return found
}

// programFor returns what to run for an execution.
func programFor(req sdk.ExecuteRequest) (program, error) {
	at := slices.IndexFunc(interpreters, func(i interpreter) bool { return i.language == req.Language })
	if at < 0 {
		return program{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "language", "there is no interpreter of %q", req.Language)
	}
	i := interpreters[at]
	file := "/run/" + i.file
	return program{argv: append(slices.Clone(i.argv), file), files: map[string]string{file: req.Code}}, nil
}
