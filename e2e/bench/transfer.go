package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"
)

const (
	transferBytes = 100 << 20
	// leastPart of a transfer, as a part of that of the plain copy, is the aim.
	leastPart = 0.3
)

// measureTransfer sends a file up and down through REST, in turn with a plain
// server that keeps it in memory too, on the same loopback.
func measureTransfer(ctx context.Context, l lab, count int) (lines []line, err error) {
	d, err := startDaemon(ctx, l, l.plugins(), `provider "self_managed" {
  pool_size    = 1
  workspace_mb = 256
  memory_mb    = 1024
}`)
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, d) }()
	id, err := d.create("bash")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("/dev/shm", "sb")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	plain := httptest.NewServer(keepFile(filepath.Join(dir, "file")))
	defer plain.Close()

	through := "http://" + d.http.Addr + "/api/v1/instances/" + id + "/files/content?path=file"
	var up, down, plainUp, plainDown times
	for round := range count + 1 {
		for _, transfer := range []struct {
			method, url string
			took        *times
		}{
			{http.MethodPut, through, &up},
			{http.MethodPut, plain.URL, &plainUp},
			{http.MethodGet, through, &down},
			{http.MethodGet, plain.URL, &plainDown},
		} {
			began := time.Now()
			if err := transferFile(ctx, transfer.method, transfer.url); err != nil {
				return nil, err
			}
			if round > 0 { // the first is to warm up
				*transfer.took = append(*transfer.took, time.Since(began))
			}
		}
	}
	return []line{transferLine("up", up, plainUp), transferLine("down", down, plainDown)}, nil
}

func transferLine(way string, took, plain times) line {
	part := ratio(plain.percentile(50), took.percentile(50))
	return line{
		what:     "100 MiB " + way + " through `/instances/{id}/files/content`",
		measured: took.String(),
		beside:   "a plain Go server with a file in memory: " + plain.String(),
		compared: fmt.Sprintf("%.2fx its rate", part),
		aim:      fmt.Sprintf(">= %.1fx", leastPart),
		met:      judge(part >= leastPart),
	}
}

// transferFile sends a file, or receives it, with a connection of its own.
func transferFile(ctx context.Context, method, url string) error {
	var body io.Reader
	if method == http.MethodPut {
		body = io.LimitReader(zeros{}, transferBytes)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	if body != nil {
		req.ContentLength = transferBytes
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK, body == nil && n != transferBytes:
		return fmt.Errorf("%s %s: HTTP %d with %d bytes", method, url, resp.StatusCode, n)
	}
	return nil
}

// keepFile is a server with one file.
func keepFile(path string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			http.ServeFile(w, r, path)
			return
		}
		f, err := os.Create(path)
		if err == nil {
			_, err = io.Copy(f, r.Body)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
