package main

import (
	"math"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
)

func sampleGraph() graph {
	g := graph{File: "sample.svg", Title: "A sample", Saturation: 12, Curves: []curve{{Name: "ours"}, {Name: "bare"}}}
	for _, load := range loads {
		wait := 8 * math.Exp(2*load)
		g.Curves[0].Points = append(g.Curves[0].Points, point{PerSecond: 12 * load, N: 20, All: figures{p50: wait, p95: 2 * wait}})
		g.Curves[1].Points = append(g.Curves[1].Points, point{PerSecond: 12 * load, N: 20, All: figures{p50: 9.5, p95: 11}})
	}
	return g
}

func TestAGraphIsDrawnTheSameEachTime(t *testing.T) {
	drawn, err := sampleGraph().draw()
	assert.NilError(t, err)
	golden.Assert(t, string(drawn), "graph.svg")
}

func TestASubjectIsBounded(t *testing.T) {
	const most = 2
	enter, leave := make(chan struct{}), make(chan struct{})
	do := subject{name: "it", most: most, do: func() error {
		enter <- struct{}{}
		<-leave
		return nil
	}}.bounded()
	done := make(chan error)
	for range most + 1 {
		go func() { done <- do() }()
	}
	for range most {
		<-enter
	}
	select {
	case <-enter:
		t.Fatal("a third is under way")
	default:
	}
	leave <- struct{}{}
	<-enter // now it is its turn
	close(leave)
	for range most + 1 {
		assert.NilError(t, <-done)
	}
}
