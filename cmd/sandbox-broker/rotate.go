package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/edit"
)

type rotateCommand struct {
	keyFlags
}

// Run seals every sealed value of the configuration and of the files that it
// includes with the first key, in place.
func (c *rotateCommand) Run(term *terminal) error {
	ring, err := c.ring(term)
	if err != nil {
		return err
	}
	document, err := edit.Open(c.Config)
	if diags, ok := errors.AsType[config.Diagnostics](err); ok {
		if err := diags.Write(term.err, term.style); err != nil {
			return err
		}
		return exitCode(1)
	}
	if err != nil {
		return err
	}
	result, err := document.Reseal(ring)
	if err != nil {
		return err
	}
	changed := document.Changed()
	if err := document.SaveResealed(); err != nil {
		return err
	}
	if len(result.Computed) > 0 {
		fmt.Fprintf(term.err, "Not here: the text of sealed() is computed at %s. Seal it anew where it comes from.\n", strings.Join(result.Computed, ", "))
	}
	first := ring.IDs()[0]
	if result.Anew == 0 {
		_, err = fmt.Fprintf(term.out, "Nothing to do: %s with the key %s.\n", counted(result.Already, "value")+" sealed", first)
		return err
	}
	_, err = fmt.Fprintf(term.out, "%s sealed anew with the key %s, in %s.\n", counted(result.Anew, "value"), first, strings.Join(changed, ", "))
	return err
}
