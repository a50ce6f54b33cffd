package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// defaultConfig is the configuration where none is named.
const defaultConfig = "sandbox.hcl"

// configFlag is for commands that take the configuration as an argument too. Without the
// flag it is nil: a name that is empty by mistake stands for no other file.
type configFlag struct {
	Config *string `short:"c" help:"The same as the argument: every command that reads a configuration has this flag." placeholder:"FILE"`
}

// agrees refuses another file beside that of the flag.
func (f configFlag) agrees(arguments ...string) error {
	for _, name := range arguments {
		if f.Config != nil && !sameFile(*f.Config, name) {
			return fmt.Errorf("name one file: both %s and --config %s are there", name, *f.Config)
		}
	}
	return nil
}

// sameFile knows a file by any of its names.
func sameFile(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// configFile is the configuration of a command that reads one.
type configFile struct {
	configFlag
	File *string `arg:"" optional:"" help:"The configuration file; sandbox.hcl unless given."`
}

// Validate is what kong asks before the command runs.
func (f configFile) Validate() error {
	if f.File == nil {
		return nil
	}
	return f.agrees(*f.File)
}

func (f configFile) name() string {
	switch {
	case f.Config != nil:
		return *f.Config
	case f.File != nil:
		return *f.File
	}
	return defaultConfig
}
