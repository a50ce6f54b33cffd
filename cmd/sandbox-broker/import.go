package main

import (
	"fmt"
	"io"
	"os"

	"github.com/sandbox-broker/sandbox-broker/config/ragflow"
)

// maxImport is how many bytes of settings are read.
const maxImport = 4 << 20

type importCommand struct {
	RAGFlow importRAGFlowCommand `cmd:"" name:"ragflow" help:"Make provider blocks of the sandbox settings of RAGFlow."`
}

type importRAGFlowCommand struct {
	File    string `arg:"" help:"The settings as JSON: rows of system_settings, or what the admin API of RAGFlow answers. - is standard input."`
	KeyFile string `help:"Seal secrets with the first key of this file. Without it the blocks take them from environment variables." placeholder:"FILE"`
}

// Run prints the blocks on standard output, and on standard error what was left out.
func (c *importRAGFlowCommand) Run(term *terminal) error {
	var seal ragflow.Seal
	if c.KeyFile != "" {
		ring, err := keyFlags{KeyFile: c.KeyFile}.ring(term)
		if err != nil {
			return err
		}
		seal = ring.Seal
	}
	text, err := c.read(term)
	if err != nil {
		return err
	}
	got, err := ragflow.Import(text, seal)
	if err != nil {
		return fileError(c.File, err)
	}
	for _, note := range got.Notes {
		fmt.Fprintln(term.err, note)
	}
	_, err = term.out.Write(got.HCL)
	return err
}

func (c *importRAGFlowCommand) read(term *terminal) ([]byte, error) {
	from := term.in
	if c.File != "-" {
		file, err := os.Open(c.File)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, maxImport+1))
	if err == nil && len(text) > maxImport {
		err = fmt.Errorf("it has more than %d bytes", maxImport)
	}
	if err != nil {
		return nil, fileError(c.File, err)
	}
	return text, nil
}
