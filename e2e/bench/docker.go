package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	dockerImage   = "sandbox-broker/rootfs:latest"
	dockerRuntime = "runsc"
)

// measureDocker compares the runtime docker with `docker run`. Where there is no
// engine that will do, the line says why.
func measureDocker(ctx context.Context, l lab, count int) (lines []line, err error) {
	e := entry{row: "docker", what: fmt.Sprintf("fresh sandboxes, sustained, through `runtime = \"docker\"`: create, run Python hello, destroy through REST, %d clients", crew()), claims: []claim{ratio(rate)}}
	if reason := noDocker(ctx); reason != "" {
		return []line{{Row: e.row, What: e.what, Note: "not measured: " + reason}}, nil
	}
	host := ""
	if address := os.Getenv("DOCKER_HOST"); address != "" {
		host = fmt.Sprintf("\n  docker_host = %q", address)
	}
	ds, err := l.start(ctx, l.selfManaged(fmt.Sprintf("runtime = \"docker\"\n  pool_size = %d\n  queue_timeout = \"5m\"%s", stock, host)))
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, ds) }()
	if err := ds.each(func(d *daemon) error { return d.oneShot(pythonHello) }); err != nil {
		return nil, err
	}
	e.ours = ds.sides(func(d *daemon) turn {
		return sustained(crew(), stock+crew(), func(int) error { return d.lifeCycle(pythonHello) })
	})
	e.beside = &side{
		fmt.Sprintf("`docker run --rm --runtime=runsc` of the same image with Python hello, %d at once", crew()),
		sustained(crew(), crew(), func(int) error { return dockerRun() }),
	}
	rest := func(ctx context.Context) error { return allContainersUp(ctx, len(ds)*stock) }
	return contest{turns: fewTurns, rest: rest}.run(ctx, count, []entry{e})
}

// noDocker says why there is no engine to measure with, "" if there is.
func noDocker(ctx context.Context) string {
	if _, err := exec.LookPath("docker"); err != nil {
		return "there is no command docker"
	}
	out, err := docker(ctx, "info", "--format", "{{json .Runtimes}}")
	switch {
	case err != nil:
		return "no Docker Engine answers (`.ci/with-docker make bench` starts one)"
	case !strings.Contains(out, `"`+dockerRuntime+`"`):
		return "the Docker Engine has no runtime " + dockerRuntime
	}
	if _, err := docker(ctx, "image", "inspect", dockerImage); err != nil {
		return "the Docker Engine has no image " + dockerImage + " (`make rootfs` makes it)"
	}
	return ""
}

func docker(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "docker", args...).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("docker %s: %w: %s", args[0], err, failed.Stderr)
	}
	return string(out), err
}

// dockerRun runs Python hello with the limits and file systems of a sandbox.
func dockerRun() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := docker(ctx, "run", "--rm", "--runtime="+dockerRuntime, "--network=none", "--read-only",
		"--memory=768m", "--memory-swap=768m", "--cpus=1", "--pids-limit=1024",
		"--cap-drop=ALL", "--security-opt=no-new-privileges", "--log-driver=none",
		"--tmpfs=/workspace:size=256m", "--tmpfs=/tmp:size=256m", "--tmpfs=/dev/shm:size=256m", "--tmpfs=/run:size=1m",
		"--entrypoint=/usr/bin/"+filepath.Base(python), dockerImage, "-c", pythonHello.code)
	if err != nil {
		return err
	}
	return pythonHello.check(out)
}

// allContainersUp waits until as many containers run as the pool holds, and no
// others exist.
func allContainersUp(ctx context.Context, count int) error {
	quiet := 0 // looks in a row
	return until(ctx, 2*time.Minute, 500*time.Millisecond, func() (bool, error) {
		out, err := docker(ctx, "ps", "--all", "--format", "{{.State}}")
		if err != nil {
			return false, err
		}
		states := strings.Fields(out)
		quiet++
		for _, s := range states {
			if s != "running" {
				quiet = 0
			}
		}
		if len(states) != count {
			quiet = 0
		}
		return quiet >= 3, nil
	})
}
