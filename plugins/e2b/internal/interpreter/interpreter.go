// Package interpreter is a client of the code interpreter, the server in a sandbox that
// keeps Jupyter kernels. Use HTTP/1.1 for it: with HTTP/2 it does not notice that a
// client has gone, and it knows no other way to stop code.
package interpreter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/e2bhttp"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/kernel"
)

// Port at which it listens, in templates that have it.
const Port = 49999

// callTimeout bounds calls other than Execute; to start a kernel takes seconds.
const callTimeout = 60 * time.Second

// Client talks to the code interpreter of one sandbox.
type Client struct{ endpoint e2bhttp.Endpoint }

// New makes a client.
func New(endpoint e2bhttp.Endpoint) *Client { return &Client{endpoint} }

// CreateContext starts a kernel and returns its ID.
func (c *Client) CreateContext(ctx context.Context, language, cwd string) (id string, err error) {
	var made struct{ ID string }
	err = c.call(ctx, http.MethodPost, "/contexts", map[string]string{"language": language, "cwd": cwd}, &made)
	if err == nil && made.ID == "" {
		err = &e2bhttp.Error{Status: http.StatusOK, Message: "a context without an ID"}
	}
	return made.ID, err
}

// Contexts returns the IDs of all kernels, those of the code interpreter itself too.
func (c *Client) Contexts(ctx context.Context) ([]string, error) {
	var all []struct{ ID string }
	err := c.call(ctx, http.MethodGet, "/contexts", nil, &all)
	var ids []string
	for _, found := range all {
		ids = append(ids, found.ID)
	}
	return ids, err
}

// RestartContext ends what runs in a kernel and forgets its state.
func (c *Client) RestartContext(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, "/contexts/"+id+"/restart", nil, nil)
}

// DeleteContext ends a kernel. An unknown one is an *e2bhttp.Error with the status 404.
func (c *Client) DeleteContext(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/contexts/"+id, nil, nil)
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.endpoint.Call(ctx, method, path, in, out)
	return err
}

// Restarted is the name of the error that stands for the death of the kernel.
const Restarted = "ContextRestarting"

// Interrupted says that the connection between the server and a kernel was lost.
func Interrupted(e kernel.Error) bool {
	return e.Name == "UnexpectedEndOfExecution" || e.Name == "WebSocketError" || e.Name == "ExecutionAborted"
}

// maxLine bounds a line: pictures are the longest, and are in one.
const maxLine = 64 << 20

// Execute runs a cell and passes on what it does, to its end. There is no time limit but
// the end of ctx, which may not stop the code. A stream that ends too early is an
// *e2bhttp.LostError.
func (c *Client) Execute(ctx context.Context, contextID, code string, event func(kernel.Event) error) error {
	body, err := json.Marshal(map[string]string{"context_id": contextID, "code": code})
	if err != nil {
		return fmt.Errorf("encode a cell: %w", err)
	}
	resp, err := c.endpoint.Send(ctx, http.MethodPost, "/execute", http.Header{"Content-Type": {"application/json"}}, bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := readLine(lines)
		if err != nil {
			return e2bhttp.Lost(err)
		}
		ev, end, err := parse(line)
		if end || err != nil {
			return err
		}
		if ev != nil {
			if err := event(*ev); err != nil {
				return err
			}
		}
	}
}

func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case len(line) > maxLine:
			return nil, fmt.Errorf("a line of more than %d bytes", maxLine)
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("the connection ended within an execution: %w", io.ErrUnexpectedEOF)
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
