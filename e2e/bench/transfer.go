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
)

const transferBytes = 100 << 20

// measureTransfer sends a file up and down through REST, in turn with a plain
// server that keeps it in memory too, on the same loopback.
func measureTransfer(ctx context.Context, l lab, count int) (lines []line, err error) {
	ds, err := l.start(ctx, l.selfManaged("pool_size = 1\n  workspace_mb = 256\n  memory_mb = 1024"))
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, ds) }()
	dir, err := os.MkdirTemp("/dev/shm", "sb")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	plain := httptest.NewServer(keepFile(filepath.Join(dir, "file")))
	defer plain.Close()

	paths := map[*daemon]string{}
	if err := ds.each(func(d *daemon) error {
		id, err := d.create("bash")
		paths[d] = "http://" + d.http.Addr + "/api/v1/instances/" + id + "/files/content?path=file"
		return err
	}); err != nil {
		return nil, err
	}
	transfer := func(method, url string) turn {
		return func(ctx context.Context, count int) (measured, error) {
			return alone(func() error { return transferFile(ctx, method, url) })(ctx, count)
		}
	}
	var entries []entry
	for _, way := range []struct{ name, method string }{{"up", http.MethodPut}, {"down", http.MethodGet}} {
		entries = append(entries, entry{
			row: "transfer/" + way.name, what: "100 MiB " + way.name + " through `/instances/{id}/files/content`",
			ours:   ds.sides(func(d *daemon) turn { return transfer(way.method, paths[d]) }),
			beside: &side{"a plain Go server with a file in memory", transfer(way.method, plain.URL)},
			claims: []claim{ratio(rate).atLeast(0.4)},
		})
	}
	return contest{turns: manyTurns, warm: 1, singly: true}.run(ctx, count, entries)
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
