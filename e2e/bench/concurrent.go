package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// measureConcurrent sends many requests at once, many more than the pool holds.
func measureConcurrent(ctx context.Context, l lab, count int) (lines []line, err error) {
	d, err := startDaemon(ctx, l, l.plugins(), `provider "self_managed" {
  pool_size     = 6
  queue_timeout = "5m"
}
limits { create_timeout = "10m" }`)
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, d) }()
	if err := quiet(ctx); err != nil {
		return nil, err
	}
	all := make(times, count)
	errs := make([]error, count)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() {
			errs[i] = d.oneShot(pythonHello)
			all[i] = time.Since(began)
		})
	}
	wg.Wait()
	took := time.Since(began)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return []line{{
		what:     fmt.Sprintf("%d `POST /execute` of Python hello at once, each in a fresh sandbox, pool of 6", count),
		measured: fmt.Sprintf("all succeeded, %s; %s", all, throughput{count, took}),
		aim:      "all succeed",
		met:      met, // else there is an error
	}}, nil
}
