// Server-sent events over fetch, which unlike EventSource can carry a token.
// A lost connection is taken up again from the last event; a silent one is given up.

const SILENCE = 25000;
const FIRST_PAUSE = 400;
const LONGEST_PAUSE = 8000;

export class Feed {
  constructor({ token, onMessage, onState }) {
    this.token = token;
    this.onMessage = onMessage;
    this.onState = onState;
    this.mark = "";
    this.stopped = false;
  }

  async run() {
    let pause = FIRST_PAUSE;
    while (!this.stopped) {
      const heard = await this.follow();
      if (this.stopped) return;
      pause = heard ? FIRST_PAUSE : Math.min(LONGEST_PAUSE, pause * 1.7);
      await new Promise((done) => setTimeout(done, pause * (0.7 + 0.6 * Math.random())));
    }
  }

  // Whether anything was heard before the connection ended.
  async follow() {
    const control = new AbortController();
    let heard = false;
    let timer = setTimeout(() => control.abort(), SILENCE);
    try {
      const headers = { Accept: "text/event-stream" };
      if (this.token) headers.Authorization = `Bearer ${this.token}`;
      if (this.mark) headers["Last-Event-ID"] = this.mark;
      const response = await fetch("api/feed", { headers, signal: control.signal, cache: "no-store" });
      if (!response.ok) {
        this.refuse(response.status, (await response.text()).trim());
        return false;
      }
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        heard = true;
        clearTimeout(timer);
        timer = setTimeout(() => control.abort(), SILENCE);
        this.onState("live", "live");
        rest = this.take(rest + value);
      }
    } catch {
      // What went wrong does not matter: the next attempt begins where this one ended.
    } finally {
      clearTimeout(timer);
    }
    if (!this.stopped) this.onState("lost", "reconnecting");
    return heard;
  }

  refuse(status, text) {
    if (status === 401 || status === 403) {
      this.stopped = true;
      this.onState(status === 401 ? "unknown" : "forbidden", text);
    } else {
      this.onState("lost", status === 503 ? text.split(":")[0] : `answered ${status}`);
    }
  }

  // Handles every whole event; what is left of the text is the beginning of the next.
  take(text) {
    let from = 0;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n", from)) {
      let id = "";
      let data = "";
      for (const line of text.slice(from, end).split("\n")) {
        if (line.startsWith("data: ")) data += line.slice(6);
        else if (line.startsWith("id: ")) id = line.slice(4);
      }
      if (data) this.onMessage(JSON.parse(data));
      if (id) this.mark = id;
      from = end + 2;
    }
    return text.slice(from);
  }
}
