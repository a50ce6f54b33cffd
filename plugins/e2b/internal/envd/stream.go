package envd

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/e2bhttp"
)

// An envelope is a byte of flags, the length of the payload in four bytes, and the
// payload.
const (
	envelopeHead = 5
	flagEnd      = 2
	// maxEnvelope bounds a message: the longest carry 32 KiB of output.
	maxEnvelope = 4 << 20
)

// envelope wraps the one message of a request.
func envelope(message any) ([]byte, error) {
	payload, err := json.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("encode a request: %w", err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(payload))), payload...), nil
}

// errCut is the cause of a LostError for a stream that stops before its end.
var errCut = errors.New("the connection ended within a stream")

// cut says that a stream has stopped before its end. A body that ends as if all were
// well is no better than a connection that breaks.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return e2bhttp.Lost(fmt.Errorf("%w: %w", errCut, err))
}

// readMessage reads the next message of a stream. io.EOF is the end that the server
// has told; an error that it has told is an *e2bhttp.Error, and a stream that is cut an
// *e2bhttp.LostError.
func readMessage(r io.Reader, into any) error {
	head := make([]byte, envelopeHead)
	if _, err := io.ReadFull(r, head); err != nil {
		return cut(err)
	}
	length := binary.BigEndian.Uint32(head[1:])
	if length > maxEnvelope {
		return e2bhttp.Lost(fmt.Errorf("a message of %d bytes", length))
	}
	payload := make([]byte, length)
	if _, err := io.ReadFull(r, payload); err != nil {
		return cut(err)
	}
	if head[0]&flagEnd == 0 {
		if err := json.Unmarshal(payload, into); err != nil {
			return e2bhttp.Lost(fmt.Errorf("a message that is no JSON: %w", err))
		}
		return nil
	}
	var end struct {
		Error *struct{ Code, Message string }
	}
	if err := json.Unmarshal(payload, &end); err != nil {
		return e2bhttp.Lost(fmt.Errorf("an end that is no JSON: %w", err))
	}
	if end.Error != nil {
		return &e2bhttp.Error{Code: end.Error.Code, Message: end.Error.Message}
	}
	return io.EOF
}
