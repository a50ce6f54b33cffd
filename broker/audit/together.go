package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Together is what VerifyTogether found.
type Together struct {
	// OK says that each log is whole, and that all of them agree.
	OK bool `json:"ok"`
	// Problem is between the logs, where each of them is whole.
	Problem *Problem `json:"problem,omitempty"`
	// Logs in the order of their paths.
	Logs []LogReport `json:"logs"`
	// Heads in the one order, with the first and the last of their numbers.
	Heads int    `json:"heads"`
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// Absent are brokers whose heads are there and whose logs are not.
	Absent []string `json:"absent,omitempty"`
}

// LogReport is that of one broker's log.
type LogReport struct {
	Path string `json:"path"`
	// Broker is what the log says whose it is.
	Broker string `json:"broker"`
	Report
}

// noted is a head and who says so.
type noted struct {
	Head
	by   string
	file string
}

// VerifyTogether checks the logs of several brokers, each in a directory of its own, and whether
// they agree about the one order of their heads. kept are heads that somebody else has, such as
// the database. A log that was cut off or written anew behind a head that others know is found
// by that. The error is one of reading.
func VerifyTogether(dirs []string, kept []Head) (Together, error) {
	var all Together
	order := &order{heads: map[uint64]noted{}}
	for _, h := range kept {
		order.note(noted{h, "the database", "the database"})
	}
	for _, dir := range dirs {
		log := LogReport{Path: dir}
		var last uint64 // number of a head that the log has noted
		report, err := verify([]string{dir}, nil, func(line Line) {
			if line.Broker == "" {
				return
			}
			if log.Broker != "" && log.Broker != line.Broker {
				order.fail(FaultChanged, dir, fmt.Sprintf("it says at number %d that it is of broker %s, and before that it is of broker %s", line.Seq, line.Broker, log.Broker))
			}
			log.Broker = line.Broker
			for _, h := range line.Heads {
				if h.Number < last {
					// A broker that has begun anew may say the same again.
					if known, there := order.heads[h.Number]; !there || known.Head != h {
						order.fail(FaultReordered, dir, fmt.Sprintf("number %d has head %d behind head %d", line.Seq, h.Number, last))
					}
				}
				last = max(last, h.Number)
				order.note(noted{h, "broker " + log.Broker, dir})
			}
		})
		if err != nil {
			return all, err
		}
		log.Report = report
		all.Logs = append(all.Logs, log)
	}
	all.OK = !slices.ContainsFunc(all.Logs, func(l LogReport) bool { return !l.OK })
	if !all.OK {
		return all, nil
	}
	order.chain()
	absent, err := order.compare(all.Logs)
	if err != nil {
		return all, err
	}
	numbers := slices.Sorted(maps.Keys(order.heads))
	if all.Heads = len(numbers); all.Heads > 0 {
		all.First, all.Last = numbers[0], numbers[len(numbers)-1]
	}
	all.Absent, all.Problem, all.OK = absent, order.problem, order.problem == nil
	return all, nil
}

// order is the one of all heads that anybody knows, by number.
type order struct {
	heads   map[uint64]noted
	problem *Problem // the first
}

func (o *order) fail(fault Fault, file, detail string) {
	if o.problem == nil {
		o.problem = &Problem{Fault: fault, File: file, Line: 1, Detail: detail}
	}
}

func (o *order) note(h noted) {
	known, there := o.heads[h.Number]
	switch {
	case !there:
		o.heads[h.Number] = h
	case known.Head != h.Head:
		o.fail(FaultReordered, h.file, fmt.Sprintf("it has another head %d than %s: number %d of broker %s, and not number %d of broker %s", h.Number, known.by, h.Seq, h.Broker, known.Seq, known.Broker))
	}
}

// chain checks that each head follows on the one before, and that no broker's log goes back.
func (o *order) chain() {
	latest := map[string]noted{}
	for _, number := range slices.Sorted(maps.Keys(o.heads)) {
		h := o.heads[number]
		if before, there := o.heads[number-1]; there && h.Prev != before.Sum() {
			o.fail(FaultReordered, h.file, fmt.Sprintf("head %d, as %s has it, does not follow on head %d, as %s has it", number, h.by, number-1, before.by))
		}
		if before, there := latest[h.Broker]; there && h.Seq < before.Seq {
			o.fail(FaultReordered, h.file, fmt.Sprintf("head %d is number %d of broker %s, of which head %d was number %d before", number, h.Seq, h.Broker, before.Number, before.Seq))
		}
		latest[h.Broker] = h
	}
}

// compare looks whether each log still has the lines that were its heads. It returns the brokers
// whose logs are not there.
func (o *order) compare(logs []LogReport) (absent []string, err error) {
	of := map[string][]noted{}
	for _, number := range slices.Sorted(maps.Keys(o.heads)) {
		h := o.heads[number]
		of[h.Broker] = append(of[h.Broker], h)
	}
	for _, log := range logs {
		if log.Broker == "" && len(of) > 0 {
			o.fail(FaultMissing, log.Path, "it does not say of which broker it is, since it has no line about the order: it was cut off or written anew, or is of a broker without a database")
			continue
		}
		heads := of[log.Broker]
		delete(of, log.Broker)
		if err := o.compareLog(log, heads); err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Keys(of), cmp.Compare[string]), nil
}

func (o *order) compareLog(log LogReport, heads []noted) error {
	wanted := map[uint64][]noted{}
	for _, h := range heads {
		switch {
		case h.Seq > log.Last:
			o.fail(FaultMissing, log.Path, fmt.Sprintf("it ends with number %d, and %s has its number %d as head %d", log.Last, h.by, h.Seq, h.Number))
		case h.Seq >= log.First: // else it was removed for its age
			wanted[h.Seq] = append(wanted[h.Seq], h)
		}
	}
	_, err := verify([]string{log.Path}, nil, func(line Line) {
		for _, h := range wanted[line.Seq] {
			if h.Hash != line.Hash.String() {
				o.fail(FaultChanged, log.Path, fmt.Sprintf("its number %d is not the line that %s has as head %d: it was written anew", h.Seq, h.by, h.Number))
			}
		}
	})
	return err
}
