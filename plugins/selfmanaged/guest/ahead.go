package guest

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
)

// PrepareVariable is the environment variable that has a guest prepare itself
// before anybody connects, so that an image can be made of the sandbox: a
// connection cannot be in it. Its value is from EncodePrepare.
//
// Such a guest writes Prepared to its output and says nothing more until a client
// has begun to speak. That client, which may speak to a copy, calls Prepare as
// ever, and the guest has nothing left to do in it.
const PrepareVariable = "SANDBOX_PREPARE"

// Prepared is the one byte that a guest writes when it has prepared itself ahead.
const Prepared = 'R'

// EncodePrepare makes a value for PrepareVariable.
func EncodePrepare(req *guestv1.PrepareRequest) (string, error) {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return "", fmt.Errorf("encode what to prepare: %w", err)
	}
	return base64.StdEncoding.EncodeToString(encoded), nil
}

// prepareAhead prepares, says so, and returns the input when there is some; nil
// if it ended.
func (g *guest) prepareAhead(encoded string, in io.ReadCloser, out io.Writer) (io.ReadCloser, error) {
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", PrepareVariable, err)
	}
	var req guestv1.PrepareRequest
	if err := proto.Unmarshal(decoded, &req); err != nil {
		return nil, fmt.Errorf("decode %s: %w", PrepareVariable, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ahead = true
	if err := g.prepare(context.Background(), &req); err != nil {
		return nil, err
	}
	g.runtime.drain()
	if _, err := out.Write([]byte{Prepared}); err != nil {
		return nil, fmt.Errorf("say that all is prepared: %w", err)
	}
	buffered := bufio.NewReader(in)
	if _, err := buffered.Peek(1); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("wait for a client: %w", err)
	}
	return struct {
		io.Reader
		io.Closer
	}{buffered, in}, nil
}
