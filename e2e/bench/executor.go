package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// executorPool is how many containers RAGFlow's own executor keeps, as its stand-alone
// compose file has it.
const executorPool = 5

// executor runs code as RAGFlow's executor manager does, by the same calls of the docker
// command in containers that are kept and used again.
type executor struct {
	free []string // IDs of containers; the first is next
	runs int
}

// startExecutor makes the containers. The caller owes a stop.
func startExecutor(ctx context.Context) (_ *executor, err error) {
	e := &executor{}
	for range executorPool {
		id, err := docker(ctx, "run", "-d", "--runtime="+dockerRuntime, "--network=none", "--read-only",
			"--tmpfs", "/workspace:rw,exec,size=100M,uid=65534,gid=65534", "--tmpfs", "/tmp:rw,exec,size=50M",
			"--user=nobody", "--workdir=/workspace", "--memory=256m", "--entrypoint=sleep", dockerImage, "infinity")
		if err != nil {
			return nil, joinStop(err, e)
		}
		e.free = append(e.free, strings.TrimSpace(id))
	}
	return e, nil
}

func (e *executor) stop() (err error) {
	for _, id := range e.free {
		_, failed := docker(context.Background(), "rm", "--force", id)
		err = errors.Join(err, failed)
	}
	return err
}

// executorRunner calls main and prints what it returns.
const executorRunner = "import json, sys\nsys.path.insert(0, '.')\nfrom main import main\nprint(json.dumps(main(**json.load(open('args.json')))))\n"

// run runs code in the next container, and leaves that as it was.
func (e *executor) run(ctx context.Context, code string) error {
	id := e.free[0]
	e.free = append(e.free[1:], id)
	e.runs++
	dir := fmt.Sprintf("/workspace/run-%d", e.runs)
	files, err := archive(map[string]string{"main.py": code, "runner.py": executorRunner, "args.json": "{}"})
	if err != nil {
		return err
	}
	isUp := func() error {
		state, err := docker(ctx, "inspect", "--format", "{{.State.Running}}", id)
		if err == nil && strings.TrimSpace(state) != "true" {
			err = errors.New("a container of the pool has ended")
		}
		return err
	}
	if err := isUp(); err != nil {
		return err
	}
	if _, err := docker(ctx, "exec", id, "mkdir", "-p", dir); err != nil {
		return err
	}
	send := exec.CommandContext(ctx, "docker", "exec", "-i", id, "tar", "-xz", "-C", dir)
	send.Stdin = bytes.NewReader(files)
	if out, err := send.CombinedOutput(); err != nil {
		return fmt.Errorf("docker exec tar: %w: %s", err, out)
	}
	out, err := docker(ctx, "exec", "--workdir", dir, id, "timeout", "10", "python3", "-I", "-B", "runner.py")
	if err != nil {
		return err
	}
	if err := pythonHello.check(out); err != nil {
		return err
	}
	if _, err := docker(ctx, "exec", "--workdir", dir, id, "find", ".", "-path", "./artifacts/*"); err != nil {
		return err
	}
	if _, err := docker(ctx, "exec", id, "rm", "-rf", dir); err != nil {
		return err
	}
	return isUp()
}

// archive packs files as the executor sends them.
func archive(files map[string]string) ([]byte, error) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	w := tar.NewWriter(z)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			return nil, err
		}
		if _, err := w.Write([]byte(text)); err != nil {
			return nil, err
		}
	}
	err := errors.Join(w.Close(), z.Close())
	return packed.Bytes(), err
}
