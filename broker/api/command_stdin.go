package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// inputPiece is how much is written to standard input at once.
	inputPiece = 32 << 10
	// stdinDefault and stdinMost bound the wait for a program that does not read.
	stdinDefault = 30 * time.Second
	stdinMost    = 300 * time.Second
)

// writeCommand copies the body to the standard input of a command, as fast as the
// program reads.
func (s *Server) writeCommand(w http.ResponseWriter, r *http.Request, c call[none]) error {
	patience := duration(c.query.number("timeout", stdinDefault.Seconds()))
	err := s.withCommands(r.Context(), c.tenant, c.id, func(ctx context.Context, commands leasedCommands) error {
		written, buf := 0, make([]byte, inputPiece)
		for {
			n, readErr := io.ReadFull(r.Body, buf)
			ended := errors.Is(readErr, io.EOF) || errors.Is(readErr, io.ErrUnexpectedEOF)
			if readErr != nil && !ended {
				return unheardError{readErr}
			}
			end := ended && c.query.boolean("end")
			if n > 0 || end || written == 0 { // an empty body is written too: it may be refused
				if err := commands.write(ctx, c.path["command"], buf[:n], end, patience, written); err != nil {
					return err
				}
			}
			if written += n; ended {
				return nil
			}
		}
	})
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// write writes a piece of what goes to standard input. before is how much was
// written already.
func (c leasedCommands) write(ctx context.Context, id string, piece []byte, end bool, patience time.Duration, before int) error {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := c.WriteCommand(waiting, c.lease.InstanceID, id, piece, end)
	if ranOut(ctx, waiting, err) {
		return sdk.Errorf(sdk.CodeConflict, "the command does not read its standard input: it has taken %d bytes of this, and perhaps some of the %d after them", before, len(piece))
	}
	return err
}
