package main

import (
	"fmt"
	"slices"
	"strings"
)

// claim is what a line says of a quantity, and the aim for it if there is one.
type claim struct {
	Quantity quantity `json:"quantity"`
	// Way is how it is put beside another series, empty where it stands for itself.
	Way way `json:"way,omitempty"`
	// Beside names what that series is, where it is not the line's own: the row of
	// another line, or a quantity of the same measurements.
	Beside string `json:"beside,omitempty"`
	// AtMost and AtLeast are aims, nil for none.
	AtMost  *float64 `json:"at_most,omitempty"`
	AtLeast *float64 `json:"at_least,omitempty"`
	// Found is what was measured.
	Found estimate `json:"found"`
}

// ratio compares with what is beside the line.
func ratio(q quantity) claim { return claim{Quantity: q, Way: asRatio} }

// difference is the same for what is added to what is beside.
func difference(q quantity) claim { return claim{Quantity: q, Way: asDifference} }

// own is the quantity itself.
func own(q quantity) claim { return claim{Quantity: q} }

// to compares with something else: the row of a line before, or a quantity.
func (c claim) to(beside string) claim {
	c.Beside = beside
	return c
}

func (c claim) atMost(v float64) claim {
	c.AtMost = &v
	return c
}

func (c claim) atLeast(v float64) claim {
	c.AtLeast = &v
	return c
}

// about is the claim with what a line shows; before are lines that it may be
// compared with.
func (c claim) about(l line, before []line) claim {
	at := slices.IndexFunc(before, func(b line) bool { return b.Row == c.Beside })
	switch {
	case c.Way == "":
		c.Found = estimated(l.Ours.All[c.Quantity], l.Ours.of(c.Quantity))
	case at >= 0:
		c.Found = paired(c.Way, c.Quantity, *l.Ours, *before[at].Ours)
	case c.Beside != "":
		other := quantity(c.Beside)
		c.Found = paired(c.Way, c.Quantity, *l.Ours, l.Ours.as(other, c.Quantity))
	default:
		c.Found = paired(c.Way, c.Quantity, *l.Ours, *l.Beside)
	}
	return c
}

// as is the series with one quantity in the place of another.
func (s series) as(from, to quantity) series {
	moved := series{N: s.N, All: figures{to: s.All[from]}}
	for _, f := range s.Turns {
		moved.Turns = append(moved.Turns, figures{to: f[from]})
	}
	return moved
}

// show is a value of the claim.
func (c claim) show(v float64) string {
	if c.Way == "" {
		return c.Quantity.show(v)
	}
	return c.Way.show(c.Quantity, v)
}

// String is what was found.
func (c claim) String() string {
	text := c.show(c.Found.Value)
	if c.Way != "" {
		text = c.Quantity.word() + " " + text
	}
	if c.Beside != "" {
		text += " of " + strings.TrimSuffix(c.Beside, "_ms")
	}
	if c.Found.Sure {
		text += fmt.Sprintf(" (%s to %s", c.show(c.Found.Low), c.show(c.Found.High))
		if c.Way != "" && c.Beside == "" && !c.Found.beyond(c.Way.none()) {
			text += ", within noise"
		}
		text += ")"
	}
	return text
}

// aim is what the claim should be, "" for nothing.
func (c claim) aim() string {
	sign, bound := "<=", c.AtMost
	if bound == nil {
		sign, bound = ">=", c.AtLeast
	}
	if bound == nil {
		return ""
	}
	text := fmt.Sprintf("%s %s", sign, c.show(*bound))
	if c.Way != "" {
		text = c.Quantity.word() + " " + text
	}
	if c.Beside != "" {
		text += " of " + strings.TrimSuffix(c.Beside, "_ms")
	}
	return text
}

// verdict says whether the aim is met, and whether that might be chance.
func (c claim) verdict() string {
	var bound float64
	var ok bool
	switch {
	case c.AtMost != nil:
		bound, ok = *c.AtMost, c.Found.Value <= *c.AtMost
	case c.AtLeast != nil:
		bound, ok = *c.AtLeast, c.Found.Value >= *c.AtLeast
	default:
		return ""
	}
	word := "missed"
	if ok {
		word = "met"
	}
	if c.Found.Sure && !c.Found.beyond(bound) && c.Found.Value != bound {
		word += ", within noise"
	}
	return word
}

// line of the table.
type line struct {
	Row  string `json:"row"` // names the line, from one run to the next
	What string `json:"what"`
	// Ours is what was measured, nil where Note says why it was not.
	Ours *series `json:"ours,omitempty"`
	// Old is the same of the older build, nil without one.
	Old        *series `json:"old,omitempty"`
	BesideWhat string  `json:"beside_what,omitempty"`
	Beside     *series `json:"beside,omitempty"`
	Claims     []claim `json:"claims,omitempty"`
	Note       string  `json:"note,omitempty"`
	Load       string  `json:"load"` // average before the row
}

// tableHead has columns for an older build or not.
func tableHead(old bool) string {
	head := []string{"row", "what", "measured", "beside", "compared (95 % interval)", "aim", "", "load before"}
	if old {
		head = slices.Insert(head, 3, "old", "new to old (95 % interval)")
	}
	return "| " + strings.Join(head, " | ") + " |\n|" + strings.Repeat(" --- |", len(head)) + "\n"
}

// row is the line in Markdown.
func (l line) row(old bool) string {
	var measured, beside, found, aims, verdicts []string
	if l.Ours != nil {
		measured = append(measured, l.Ours.String())
	}
	if l.Note != "" {
		measured = append(measured, l.Note)
	}
	if l.BesideWhat != "" {
		beside = append(beside, l.BesideWhat)
	}
	if l.Beside != nil {
		beside = append(beside, l.Beside.String())
	}
	for _, c := range l.Claims {
		found = append(found, c.String())
		if aim := c.aim(); aim != "" {
			aims, verdicts = append(aims, aim), append(verdicts, c.verdict())
		}
	}
	cells := []string{"`" + l.Row + "`", l.What, strings.Join(measured, "; "), strings.Join(beside, ": "), strings.Join(found, "; "), strings.Join(aims, "; "), strings.Join(verdicts, "; "), l.Load}
	if old {
		was, change := "", ""
		if l.Old != nil {
			was, change = l.Old.String(), l.change()
		}
		cells = slices.Insert(cells, 3, was, change)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// String is what the table shows.
func (s series) String() string {
	var parts []string
	for _, q := range quantities {
		v, ok := s.All[q]
		switch {
		case !ok:
		case q == p50 || q == p95 || q == p99:
			parts = append(parts, q.word()+" "+q.show(v))
		default:
			parts = append(parts, q.show(v))
		}
	}
	return fmt.Sprintf("n %d: %s", s.N, strings.Join(parts, ", "))
}

// main is the quantity in which two builds are compared.
func (l line) main() quantity {
	for _, c := range l.Claims {
		if _, ok := l.Ours.All[c.Quantity]; ok {
			return c.Quantity
		}
	}
	for _, q := range quantities {
		if _, ok := l.Ours.All[q]; ok {
			return q
		}
	}
	return p50
}

// change is how the new build stands to the old one, which took turns with it.
func (l line) change() string {
	q := l.main()
	e := paired(asRatio, q, *l.Ours, *l.Old)
	text := q.word() + " " + asRatio.show(q, e.Value)
	switch {
	case !e.Sure:
		return text
	case !e.beyond(1):
		return text + fmt.Sprintf(" (%.2fx to %.2fx), within noise", e.Low, e.High)
	case (e.Value < 1) == q.lowerIsBetter():
		return text + fmt.Sprintf(" (%.2fx to %.2fx), better", e.Low, e.High)
	default:
		return text + fmt.Sprintf(" (%.2fx to %.2fx), worse", e.Low, e.High)
	}
}
