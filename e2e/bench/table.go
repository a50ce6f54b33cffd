package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// line of the table.
type line struct {
	what     string
	measured string
	beside   string // what it is compared with
	compared string // ratio or difference
	aim      string
	met      verdict
}

// verdict is how a figure stands to its aim.
type verdict string

const (
	noAim  verdict = ""
	met    verdict = "met"
	missed verdict = "missed"
)

func judge(ok bool) verdict {
	if ok {
		return met
	}
	return missed
}

const tableHead = "| what | measured | beside | compared | aim | | load before |\n| --- | --- | --- | --- | --- | --- | --- |\n"

// row is the line in Markdown.
func (l line) row(load string) string {
	return "| " + strings.Join([]string{l.what, l.measured, l.beside, l.compared, l.aim, string(l.met), load}, " | ") + " |\n"
}

// times of measurements of one kind.
type times []time.Duration

// percentile is the smallest time that so many percent do not exceed.
func (t times) percentile(p int) time.Duration {
	sorted := slices.Sorted(slices.Values(t))
	return sorted[max((len(sorted)*p+99)/100, 1)-1]
}

// String gives the percentiles that the table shows.
func (t times) String() string {
	return fmt.Sprintf("p50 %s, p95 %s, p99 %s", ms(t.percentile(50)), ms(t.percentile(95)), ms(t.percentile(99)))
}

func ms(d time.Duration) string {
	precision := 1
	if d < 10*time.Millisecond {
		precision = 2
	}
	return fmt.Sprintf("%.*f ms", precision, float64(d)/float64(time.Millisecond))
}

// ratio of two times.
func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// difference of two times, with its sign.
func difference(d time.Duration) string {
	if d < 0 {
		return "-" + ms(-d)
	}
	return "+" + ms(d)
}
