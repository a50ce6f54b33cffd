package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/table"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Output is the flag for how an answer is printed.
type Output struct {
	Output string `short:"o" default:"table" enum:"table,wide,json,name" help:"How to print: ${enum}. json is what the API said, name the names alone."`
}

// listing is how the items of an answer are printed.
type listing[T any] struct {
	columns []table.Column[T]
	name    func(T) string
}

// print prints items, or the answer that they came in.
func (l listing[T]) print(console *Console, as string, items []T, answer json.RawMessage) error {
	switch as {
	case "json":
		return printJSON(console.Out, answer)
	case "name":
		for _, item := range items {
			if _, err := fmt.Fprintln(console.Out, table.Printable(l.name(item))); err != nil {
				return err
			}
		}
		return nil
	default:
		return table.Print(console.Out, l.columns, items, table.Options{Wide: as == "wide", Colors: console.colors})
	}
}

// printJSON prints an answer, with its lines indented.
func printJSON(w io.Writer, answer json.RawMessage) error {
	var b bytes.Buffer
	if err := json.Indent(&b, answer, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err := b.WriteTo(w)
	return err
}

// answered asks for something and returns the answer, as it came and decoded. What the
// broker said that this program does not know yet is in the former.
func answered[T any](ctx context.Context, broker *client.Client, r client.Request) (answer json.RawMessage, decoded T, err error) {
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	resp, err := broker.Do(ctx, r)
	if err != nil {
		return nil, decoded, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, client.MaxAnswer))
	if err != nil {
		return nil, decoded, unreadable{fmt.Errorf("the broker's answer broke off: %w", err)}
	}
	if err := json.Unmarshal(answer, &decoded); err != nil {
		return nil, decoded, unreadable{errors.New("what answers is no sandbox broker")}
	}
	return answer, decoded, nil
}

// pages asks for all pages of a list, whose items are in the field that is named, and
// returns them as one answer and decoded.
func pages[T any](ctx context.Context, broker *client.Client, path, field string, query url.Values) (answer json.RawMessage, items []T, err error) {
	raw := []json.RawMessage{}
	for after := ""; ; {
		_, page, err := answered[map[string]json.RawMessage](ctx, broker, client.Request{Path: path, Query: paged(query, after)})
		if err != nil {
			return nil, nil, err
		}
		var some []json.RawMessage
		if err := json.Unmarshal(page[field], &some); err != nil {
			return nil, nil, unreadable{errors.New("what answers is no sandbox broker")}
		}
		raw = append(raw, some...)
		after = ""
		if next, more := page["next"]; more {
			if err := json.Unmarshal(next, &after); err != nil {
				return nil, nil, unreadable{errors.New("what answers is no sandbox broker")}
			}
		}
		if after == "" {
			break
		}
	}
	for _, one := range raw {
		var item T
		if err := json.Unmarshal(one, &item); err != nil {
			return nil, nil, unreadable{fmt.Errorf("an item of the broker's answer cannot be read: %w", err)}
		}
		items = append(items, item)
	}
	return listOf(field, raw), items, nil
}

// listOf is an answer with these items.
func listOf(field string, items []json.RawMessage) json.RawMessage {
	encoded, _ := json.Marshal(map[string][]json.RawMessage{field: items}) // they were JSON before
	return encoded
}
