package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// price is what a second of a sandbox costs, and who says so.
type price struct {
	perSecond        float64
	currency, source string
}

// costSetting is the setting by which the broker and its plugins know prices.
const costSetting = "cost_per_second"

// priceOf takes the price that was given, else that which the plugin names in its schema,
// else the guess.
func priceOf(given float64, plugin string, schema sdk.Schema, c cloud) price {
	if given > 0 {
		return price{given, "", "given as PRICE"}
	}
	if field, ok := schema.Field(costSetting); ok {
		said := []struct{ text, what string }{{fmt.Sprint(field.Default), "default"}, {field.Placeholder, "example"}}
		for _, s := range said {
			if value, err := strconv.ParseFloat(s.text, 64); err == nil && value > 0 {
				return price{value, c.currency, fmt.Sprintf("the %s of %s in the schema of the plugin %s", s.what, costSetting, plugin)}
			}
		}
	}
	return price{c.guess, c.currency, c.guessed}
}

func (p price) String() string {
	if p.currency == "" {
		return fmt.Sprintf("%g a second (%s)", p.perSecond, p.source)
	}
	return fmt.Sprintf("%g %s a second (%s)", p.perSecond, p.currency, p.source)
}

// bill counts what sandboxes should cost while they are there, by the second.
type bill struct {
	price, most float64
	over        func() // called when most is reached

	mu    sync.Mutex
	since map[string]time.Time
	spent time.Duration
}

func (b *bill) begin(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.since == nil {
		b.since = map[string]time.Time{}
	}
	if _, known := b.since[id]; !known {
		b.since[id] = time.Now()
	}
}

func (b *bill) end(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if since, ok := b.since[id]; ok {
		b.spent += time.Since(since)
		delete(b.since, id)
	}
}

// rename counts on under another name, unless that is there already: a creation that was
// asked for again gave the same sandbox.
func (b *bill) rename(from, to string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	since := b.since[from]
	delete(b.since, from)
	if _, known := b.since[to]; !known {
		b.since[to] = since
	}
}

// total counts those that nobody has ended yet as well.
func (b *bill) total() (seconds, cost float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := b.spent
	for _, since := range b.since {
		sum += time.Since(since)
	}
	return sum.Seconds(), sum.Seconds() * b.price
}

// watch ends the run when the money is spent.
func (b *bill) watch(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		if _, cost := b.total(); cost >= b.most {
			b.over()
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
