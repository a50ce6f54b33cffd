package main

import (
	"errors"
	"io/fs"
	"os"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/seal"
)

// keyFlags say where a command takes the keys for sealed values from.
type keyFlags struct {
	Config  string `short:"c" default:"sandbox.hcl" help:"The configuration whose keys are used." placeholder:"FILE"`
	KeyFile string `help:"Use the keys of this file alone." placeholder:"FILE"`
}

// ring reads the keys. What is wrong with the configuration is shown, and the
// error then is an exit code.
func (f keyFlags) ring(term *terminal) (*seal.Keyring, error) {
	if f.KeyFile != "" {
		text, err := seal.ReadKeyFile(f.KeyFile)
		if err != nil {
			return nil, fileError(f.KeyFile, err)
		}
		ring, err := seal.ParseKeys(string(text))
		if err != nil {
			return nil, fileError(f.KeyFile, err)
		}
		return ring, nil
	}
	// Where there is no configuration, there may be keys in the environment.
	if _, err := os.Stat(f.Config); errors.Is(err, fs.ErrNotExist) {
		if text := os.Getenv(config.KeysVariable); text != "" {
			ring, err := seal.ParseKeys(text)
			if err != nil {
				return nil, fileError(config.KeysVariable, err)
			}
			return ring, nil
		}
	}
	ring, diags := config.LoadKeys(f.Config)
	if !diags.HasErrors() {
		return ring, nil
	}
	if err := diags.Write(term.err, term.style); err != nil {
		return nil, err
	}
	return nil, exitCode(1)
}
