package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/config/seal"
)

type sealCommand struct {
	keyFlags
}

// Run seals what stands on standard input, or what a person types. A value is no
// argument: others on this machine see those.
func (c *sealCommand) Run(term *terminal) error {
	ring, err := c.ring(term)
	if err != nil {
		return err
	}
	value, err := term.secret("The value to seal: ")
	if err != nil {
		return err
	}
	if value == "" {
		return errors.New("there is nothing to seal: the value is empty")
	}
	if !utf8.ValidString(value) {
		return errors.New("the value is not UTF-8 text, which a configuration cannot hold")
	}
	sealed, err := ring.Seal(value)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(term.out, "sealed(\"%s\")\n", sealed)
	return err
}

type unsealCommand struct {
	keyFlags
	Value string `arg:"" optional:"" help:"The sealed value, with or without sealed(\"...\") around it; standard input unless given."`
}

var sealedCall = regexp.MustCompile(`^sealed\(\s*"([^"]*)"\s*\)$`)

// Run prints the value that was sealed.
func (c *unsealCommand) Run(term *terminal) error {
	ring, err := c.ring(term)
	if err != nil {
		return err
	}
	text := c.Value
	if text == "" {
		input, err := io.ReadAll(io.LimitReader(term.in, 4*seal.MaxValue))
		if err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
		text = string(input)
	}
	text = strings.TrimSpace(text)
	if m := sealedCall.FindStringSubmatch(text); m != nil {
		text = m[1]
	}
	value, err := ring.Open(text)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(term.out, value)
	return err
}
