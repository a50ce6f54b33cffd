package pluginhost

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Executable is the program behind a provider.
type Executable struct {
	// Name in the plugin directory, and Path.
	Name, Path string
	// SHA256 is the sum of the program that runs, in hexadecimal; "" while none
	// does, and for scripts.
	SHA256 string
	// Pinned says that the configuration accepts no other sum.
	Pinned bool
}

// Executable returns the program behind the provider. It reads all of it when it is
// asked for the first time.
func (s *Supervised) Executable() Executable {
	s.mu.Lock()
	current := s.current
	s.mu.Unlock()
	e := Executable{
		Name: s.spec.Plugin, Path: filepath.Join(s.launcher.dirOf(s.spec), s.spec.Plugin), Pinned: s.spec.SHA256 != "",
	}
	if current != nil {
		e.SHA256 = current.sum()
	}
	return e
}

// sum is that of the program that the process runs, whatever has become of its file
// meanwhile; "" if it cannot be read.
func (p *Process) sum() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.programSum != "" || p.runner.exe.script {
		return p.programSum
	}
	program, err := p.runner.openProgram()
	if err != nil {
		return ""
	}
	defer program.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, program); err != nil {
		return ""
	}
	p.programSum = hex.EncodeToString(hash.Sum(nil))
	return p.programSum
}

// openProgram opens what the process runs.
func (r *processRunner) openProgram() (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		return nil, os.ErrProcessDone
	}
	program, err := os.Open(fmt.Sprintf("/proc/%d/exe", r.process.PID))
	if err != nil {
		return nil, err
	}
	// The number was the process's own if it still is.
	if !r.process.Lives() {
		return nil, errors.Join(os.ErrProcessDone, program.Close())
	}
	return program, nil
}
