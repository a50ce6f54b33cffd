package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Kept is what a copy of a sandbox is told beside its files. The original has the memory of
// its virtual machine; here the cells that a kernel has run are run again, and what runs is
// started again. That is the same for code that does the same twice.
type Kept struct {
	Kernels   []KeptKernel
	Processes []KeptProcess
}

// KeptKernel is a context of the code interpreter.
type KeptKernel struct {
	ID, Language, Cwd string
	// Default is the language whose default one it is; empty for any other.
	Default string
	// Ran are the cells so far, Pasted says that the environment is among them.
	Ran    []string
	Pasted bool
}

// KeptProcess is one that runs.
type KeptProcess struct {
	User string
	startRequest
}

// FilesKept is the archive of files in Config.Dir that a copy begins with.
const FilesKept = "files.tar"

// own are what every sandbox has by itself.
var own = map[string]bool{"bin": true, "dev": true, "etc": true, "lib": true, "lib64": true, "proc": true, "run": true, "usr": true}

// keep answers what there is to keep, while all else stands still.
func (e *envd) keep(i *interpreter) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		var kept Kept
		e.mu.Lock()
		for _, p := range e.processes {
			select {
			case <-p.ended:
			default:
				kept.Processes = append(kept.Processes, KeptProcess{p.user, p.request})
			}
		}
		e.mu.Unlock()
		if i != nil {
			kept.Kernels = i.kept()
		}
		if err := e.packFiles(); err != nil {
			writeError(w, http.StatusInternalServerError, err.Error())
			return
		}
		writeJSON(w, http.StatusOK, kept)
	}
}

// packFiles writes the archive to where the fake finds it.
func (e *envd) packFiles() error {
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	arguments := []string{"-C", "/", "-cpf", filepath.Join(e.config.Dir, FilesKept)}
	for _, entry := range entries {
		if !own[entry.Name()] {
			arguments = append(arguments, entry.Name())
		}
	}
	return tar(arguments...)
}

func unpackFiles(dir string) error {
	return tar("-C", "/", "--overwrite", "-xpf", filepath.Join(dir, FilesKept))
}

func tar(arguments ...string) error {
	said, err := exec.Command("tar", arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("tar: %w: %s", err, strings.TrimSpace(string(said)))
	}
	return nil
}

// kept are the contexts as they are.
func (i *interpreter) kept() []KeptKernel {
	i.mu.Lock()
	defer i.mu.Unlock()
	var all []KeptKernel
	for id, k := range i.contexts {
		one := k.kept()
		one.ID = id
		for language, first := range i.defaults {
			if first == id {
				one.Default = language
			}
		}
		all = append(all, one)
	}
	return all
}

func (k *kernel) kept() KeptKernel {
	k.mu.Lock()
	defer k.mu.Unlock()
	return KeptKernel{Language: k.language, Cwd: k.cwd, Ran: append([]string(nil), k.ran...), Pasted: k.pasted}
}

// revive brings the kernels to where they were. Files that the cells write are put right
// afterwards.
func (i *interpreter) revive(all []KeptKernel) error {
	var reviving sync.WaitGroup
	failed := make(chan error, len(all))
	for _, one := range all {
		k := &kernel{language: one.Language, cwd: one.Cwd, pasted: one.Pasted}
		i.contexts[one.ID] = k
		if one.Default != "" {
			i.defaults[one.Default] = one.ID
		}
		reviving.Go(func() { failed <- k.replay(one.Ran) })
	}
	reviving.Wait()
	for range all {
		if err := <-failed; err != nil {
			return err
		}
	}
	return nil
}

func (k *kernel) replay(cells []string) error {
	if err := k.begin(k.cwd); err != nil {
		return err
	}
	for _, code := range cells {
		if _, err := k.execute(code, func(json.RawMessage) {}); err != nil {
			return fmt.Errorf("run a cell again: %w", err)
		}
	}
	return nil
}
