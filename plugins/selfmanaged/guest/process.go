package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands/pipe"
)

// process is an interpreter. What it runs arrives later, so it can be started
// ahead.
type process struct {
	*isolation.Process
	request *os.File // its descriptor 3: what to run; ends after it
	stdout  *pipe.Reader
	stderr  *pipe.Reader
	result  *pipe.Reader // its descriptor 4: a byte when ready, then what package frames reads
	// leaves is a file that the interpreter may write, and that is removed with it;
	// "" for none. It cannot do that itself if it is killed.
	leaves string
}

// startProcess starts an interpreter. What it shall run is written to request.
// The caller must end it with wait.
func startProcess(s isolation.Spec) (*process, error) {
	p := &process{}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	output := func(ours **pipe.Reader) (*os.File, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		*ours = pipe.NewReader(r)
		theirs = append(theirs, w)
		return w, nil
	}
	stdout, err1 := output(&p.stdout)
	stderr, err2 := output(&p.stderr)
	result, err3 := output(&p.result)
	request, ours, err4 := os.Pipe()
	if err4 == nil {
		p.request, theirs = ours, append(theirs, request)
	}
	err := errors.Join(err1, err2, err3, err4)
	if err == nil {
		p.Process, err = isolation.Start(s, isolation.Streams{Stdout: stdout, Stderr: stderr, Extra: []*os.File{request, result}})
	}
	if err != nil {
		p.closePipes()
		return nil, err
	}
	return p, nil
}

// waitReady returns when the interpreter says that it waits for a request.
func (p *process) waitReady() error {
	var b [1]byte
	if _, err := io.ReadFull(p.result, b[:]); err != nil {
		complaint, _ := io.ReadAll(io.LimitReader(p.stderr, 4<<10))
		return fmt.Errorf("interpreter ended before it was ready: %s", complaint)
	}
	return nil
}

// waitGone returns when every process of the interpreter has gone, and ends its
// pipes: whoever was given the other ends may hold them for ever. What they hold
// can still be read. It may be called twice.
func (p *process) waitGone() {
	p.Wait()
	for _, r := range []*pipe.Reader{p.stdout, p.stderr, p.result} {
		r.End()
	}
	_ = p.request.SetWriteDeadline(time.Unix(1, 0)) // it may be closed
}

// wait returns when every process of the interpreter has gone, and removes what is
// left. It may be called twice.
func (p *process) wait() {
	p.Wait()
	if p.leaves != "" {
		_ = os.Remove(p.leaves) // most code leaves none
	}
	p.closePipes()
}

func (p *process) closePipes() {
	if p.request != nil {
		_ = p.request.Close()
	}
	for _, r := range []*pipe.Reader{p.stdout, p.stderr, p.result} {
		if r != nil {
			_ = r.Close()
		}
	}
}
