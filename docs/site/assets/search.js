// The search of the site. The index is a script that is fetched when somebody begins to type;
// search.go makes it, and says what is in it.
"use strict";
(() => {
  const most = 20;
  const root = document.documentElement.dataset.root;
  const form = document.querySelector("form[role=search]");
  const question = document.querySelector("#site-question");
  const answers = document.querySelector("#site-answers");
  const says = document.querySelector("#site-answers-say");
  const list = answers.querySelector("ol");
  form.hidden = false;

  let index; // a promise of what is looked in
  const load = () => (index ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = root + "search-index.js";
    script.onload = () => resolve({ ...self.searchIndex, terms: self.searchIndex.terms.split(" ") });
    script.onerror = () => reject(new Error("The index of the search is not there."));
    document.head.append(script);
  }));

  const wordsOf = (text) => text.toLowerCase().split(/[^\p{L}\p{Nd}_]+/u).map((w) => w.replace(/^_+|_+$/g, "")).filter(Boolean);

  // first is the number of the first term that does not stand before a word.
  const first = (terms, word) => {
    let low = 0, high = terms.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (terms[middle] < word) low = middle + 1; else high = middle;
    }
    return low;
  };

  // find returns the sections that have all words, or words that begin so, best ones first.
  const find = ({ sections, terms, postings }, words) => {
    let scores;
    for (const word of words) {
      const here = new Map();
      for (let t = first(terms, word); t < terms.length && terms[t].startsWith(word); t++) {
        const share = terms[t] === word ? 1 : 0.4;
        for (let i = 0; i < postings[t].length; i += 2) {
          const [section, weight] = [postings[t][i], postings[t][i + 1] * share];
          here.set(section, Math.max(here.get(section) ?? 0, weight));
        }
      }
      scores = scores ? new Map([...scores].filter(([s]) => here.has(s)).map(([s, score]) => [s, score + here.get(s)])) : here;
    }
    return [...(scores ?? [])].sort(([a, x], [b, y]) => y - x || a - b).map(([section]) => sections[section]);
  };

  const show = (pages, found, words) => {
    says.textContent = found.length === 0 ? `Nothing has ${words.join(", ")}.` : found.length > most ? `The best ${most} of ${found.length}:` : `${found.length} found:`;
    list.replaceChildren(...found.slice(0, most).map(([page, anchor, heading, excerpt]) => {
      const [href, title] = pages[page];
      const link = document.createElement("a");
      link.href = root + href + (anchor ? "#" + anchor : "");
      link.textContent = heading && heading !== title ? `${title}: ${heading}` : title;
      const text = document.createElement("p");
      text.textContent = excerpt;
      const item = document.createElement("li");
      item.append(link, text);
      return item;
    }));
    answers.hidden = false;
  };

  const answer = async () => {
    const words = wordsOf(question.value);
    if (words.length === 0) {
      answers.hidden = true;
      return;
    }
    try {
      const looked = await load();
      // Somebody may have typed on while the index came.
      if (wordsOf(question.value).join(" ") === words.join(" ")) show(looked.pages, find(looked, words), words);
    } catch (error) {
      says.textContent = error.message;
      answers.hidden = false;
    }
  };

  question.addEventListener("input", answer);
  question.addEventListener("focus", () => load().catch(() => {}), { once: true });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    list.querySelector("a")?.focus();
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      question.focus();
    } else if (event.key === "Escape" && !answers.hidden) {
      question.value = "";
      answers.hidden = true;
      question.focus();
    }
  });
  answers.addEventListener("click", (event) => {
    if (event.target.closest("a")) answers.hidden = true; // the page may be this one
  });
})();
