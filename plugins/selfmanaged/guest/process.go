package guest

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
)

// process is an interpreter. What it runs arrives later, so it can be started
// ahead.
type process struct {
	*isolation.Process
	request *os.File // its descriptor 3: what to run; ends after it
	stdout  *os.File
	stderr  *os.File
	result  *os.File // its descriptor 4: a byte when ready, then what package frames reads
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
	pipe := func(ours **os.File, weWrite bool) (*os.File, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		if weWrite {
			r, w = w, r
		}
		*ours = r
		theirs = append(theirs, w)
		return w, nil
	}
	stdout, err1 := pipe(&p.stdout, false)
	stderr, err2 := pipe(&p.stderr, false)
	result, err3 := pipe(&p.result, false)
	request, err4 := pipe(&p.request, true)
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
	for _, f := range []*os.File{p.request, p.stdout, p.stderr, p.result} {
		if f != nil {
			_ = f.Close()
		}
	}
}
