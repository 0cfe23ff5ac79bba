// What tests/tools/test_browser.py asks of an open page: returns a list of what is wrong with it, in words.
// width: of the window, in pixels. beside: whether code has to stand beside its prose there, not below it.
({ width, beside }) => {
  const found = new Set();
  const article = document.querySelector("article");
  if (!article) return ["the page has no article"];

  const box = (element) => element.getBoundingClientRect();
  const shown = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const inside = ({ left, right }) => left >= -1 && right <= width + 1;
  const ancestors = function* (element) {
    for (; element; element = element.parentElement) yield element;
  };
  const named = (element) => {
    const text = (element.textContent || "").trim().replace(/\s+/g, " ").slice(0, 40);
    const kind = [element.tagName.toLowerCase(), ...element.classList].join(".");
    return `<${kind}> ${text ? `“${text}”` : element.getAttribute("src") || ""}`.trim();
  };
  const scrolled = (element, block) => element.scrollIntoView({ block, behavior: "instant" });
  const boxesOf = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return [...range.getClientRects()].filter((one) => one.width && one.height);
  };

  // All text that a reader sees, and where it is while the page is at its top.
  scrollTo({ top: 0, behavior: "instant" });
  const texts = [];
  for (const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); walker.nextNode(); ) {
    const element = walker.currentNode.parentElement;
    if (walker.currentNode.data.trim() && shown(element)) texts.push({ element, boxes: boxesOf(walker.currentNode) });
  }

  // ---- nothing sticks out of the window, unless it can be scrolled in a box of its own ----
  if (document.documentElement.clientWidth !== width) found.add(`is laid out for ${document.documentElement.clientWidth} pixels`);
  if (document.documentElement.scrollWidth > width) found.add(`the page is wider than the window: ${document.documentElement.scrollWidth} pixels`);
  const scrolls = (element) => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
  const boxed = (element) => {
    const own = [...ancestors(element)].find((one) => article.contains(one) && scrolls(one));
    return own && inside(box(own));
  };
  const blocks = [...article.querySelectorAll("img, math, table, pre, .beside, .math")].filter(shown);
  const placed = [...texts.filter(({ element }) => article.contains(element)), ...blocks.map((element) => ({ element, boxes: [box(element)] }))];
  const out = new Set(placed.filter(({ element, boxes }) => !boxes.every(inside) && !boxed(element)).map(({ element }) => element));
  for (const element of out) {
    const within = [...ancestors(element.parentElement)].some((one) => out.has(one));
    if (!within) found.add(`sticks out of the window: ${named(element)}`);
  }

  // ---- code beside its prose, or below it ----
  const uncovered = (element) => {
    // Whether its first text, in the middle of the window, is not behind anything.
    const text = texts.find((one) => element.contains(one.element) && one.boxes.length)?.element;
    if (!text) return false;
    scrolled(text, "center");
    const [first] = boxesOf(text);
    const hit = document.elementFromPoint(first.left + Math.min(4, first.width / 2), first.top + first.height / 2);
    return hit !== null && (element.contains(hit) || hit.contains(text));
  };
  for (const row of document.querySelectorAll(".beside")) {
    const prose = row.querySelector(":scope > .prose");
    const code = row.querySelector(":scope > .code");
    const quoted = [...(code?.querySelectorAll("pre") ?? [])];
    if (!prose?.textContent.trim() || !quoted.length) {
      found.add(`a row lacks prose or code: ${named(row)}`);
      continue;
    }
    scrollTo({ top: 0, behavior: "instant" });
    const [words, lines] = [box(prose), box(code)];
    if (beside && (lines.left < words.right || lines.top > words.top + 40)) found.add(`code is not at the right of its prose: ${named(prose)}`);
    if (!beside && lines.top < words.bottom - 1) found.add(`code is not below its prose: ${named(prose)}`);
    for (const part of [prose, ...quoted]) {
      if (!shown(part) || box(part).width < 150 || box(part).height < 16 || !inside(box(part)) || !uncovered(part)) {
        found.add(`is not visible in its row: ${named(part)}`);
      }
    }
    if (beside) {
      // The paragraph right before a quotation is read with the quotation in the window.
      scrolled(prose.lastElementChild, "center");
      const { top, bottom, height } = box(code);
      if (Math.min(bottom, innerHeight) - Math.max(top, 0) < Math.min(height, innerHeight / 4)) found.add(`code is not in the window with its paragraph: ${named(prose.lastElementChild)}`);
      for (const part of prose.querySelectorAll("pre, .math, img")) {
        if (part.matches("img") || part.scrollWidth > part.clientWidth + 1) found.add(`does not fit into the column of prose: ${named(part)}`);
      }
    }
  }
  scrollTo({ top: 0, behavior: "instant" });

  // ---- equations ----
  const middle = (element) => (box(element).top + box(element).bottom) / 2;
  for (const equation of document.querySelectorAll("math")) {
    const parts = [...equation.querySelectorAll("mi, mn, mo, mtext")].filter((part) => part.textContent.trim());
    if (!parts.length || !box(equation).width || parts.some((part) => !box(part).height)) found.add(`an equation is not drawn: ${named(equation)}`);
    if (equation.querySelector("merror")) found.add(`an equation is an error: ${named(equation)}`);
  }
  for (const one of document.querySelectorAll("msub, msup, msubsup")) {
    const [base, ...indices] = [...one.children].map(middle);
    const [low, high] = one.matches("msup") ? [Infinity, indices[0]] : [indices[0], indices[1] ?? -Infinity];
    if (low < base + 1 || high > base - 1) found.add(`an index is on the line (Debian's fonts-dejavu-extra has a font for equations): ${named(one.closest("math"))}`);
  }
  for (const table of document.querySelectorAll("mtable")) {
    for (const [side, at] of Object.entries({ left: 0, right: -1 })) {
      for (const column of [1, 2, 3, 4]) {
        const cells = [...table.querySelectorAll(`:scope > mtr > mtd[columnalign="${side}"]:nth-child(${column})`)];
        const edges = cells.flatMap((cell) => [...cell.children].map(box).filter((part) => part.width).slice(at)[0]?.[side] ?? []);
        if (Math.max(...edges) - Math.min(...edges) > 1) found.add(`the rows of an equation are not aligned: ${named(table)}`);
      }
    }
  }

  // ---- contrast, as WCAG 2.2 defines it in 1.4.3 ----
  const parsed = (colour) => {
    const numbers = colour.match(/^rgba?\((.*)\)$/)?.[1].split(/[ ,/]+/).map(Number);
    if (!numbers) found.add(`a colour that this test cannot read: ${colour}`);
    return numbers ? [...numbers.slice(0, 3), numbers[3] ?? 1] : [0, 0, 0, 1];
  };
  const over = ([r, g, b, a], ground) => [r, g, b].map((value, i) => a * value + (1 - a) * ground[i]);
  const luminance = (colour) => {
    const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = colour.map((value) => linear(value / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const known = new Map();
  const ground = (element) => {
    // What is behind an element's text.
    if (!element) return [255, 255, 255];
    if (!known.has(element)) known.set(element, over(parsed(getComputedStyle(element).backgroundColor), ground(element.parentElement)));
    return known.get(element);
  };
  for (const { element } of texts) {
    const style = getComputedStyle(element);
    const back = ground(element);
    const [r, g, b, alpha] = parsed(style.color);
    const opacity = [...ancestors(element)].reduce((product, one) => product * getComputedStyle(one).opacity, alpha);
    const ratio = contrast(over([r, g, b, opacity], back), back);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) {
      found.add(`text is hard to read, ${ratio.toFixed(2)} to 1 (${style.color} on rgb(${back.map(Math.round).join(", ")})): ${named(element)}`);
    }
  }

  // ---- pictures: there, told in words, on a ground of their own, so that the theme does not matter ----
  for (const picture of document.images) {
    const source = picture.getAttribute("src");
    if (picture.alt.trim().length < 10) found.add(`a picture has no text for those who do not see it: ${source}`);
    if (!picture.naturalWidth || !shown(picture) || box(picture).width < 16) {
      found.add(`a picture is not shown: ${source}`);
      continue;
    }
    if (location.protocol === "file:") continue; // whose pixels are not to be read
    const canvas = document.createElement("canvas");
    canvas.width = 400;
    canvas.height = Math.max(1, Math.round((400 * picture.naturalHeight) / picture.naturalWidth));
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.fillStyle = getComputedStyle(picture).backgroundColor;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    const pixels = context.getImageData(2, 2, canvas.width - 4, canvas.height - 4).data; // its edge may end between two pixels
    const counts = new Map();
    let opaque = true;
    for (let i = 0; i < pixels.length; i += 4) {
      opaque &&= pixels[i + 3] === 255;
      const colour = (pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2];
      counts.set(colour, (counts.get(colour) ?? 0) + 1);
    }
    const split = (colour) => [colour >> 16, (colour >> 8) & 255, colour & 255];
    const [[most]] = [...counts].sort(([, one], [, other]) => other - one);
    const ink = [...counts].reduce((sum, [colour, count]) => sum + (contrast(split(colour), split(most)) >= 4.5 ? count : 0), 0);
    if (!opaque) found.add(`a picture has no ground of its own: ${source}`);
    if (ink < pixels.length / 4 / 500) found.add(`nothing can be read in a picture: ${source}`);
  }

  // ---- nothing is fetched from elsewhere, not even in advance ----
  for (const link of document.querySelectorAll("link[href]")) {
    if (!link.relList.contains("canonical") && new URL(link.href).origin !== location.origin && !link.href.startsWith("data:")) found.add(`a link of the head leads elsewhere: ${link.href}`);
  }
  if (!document.querySelector("link[rel~=icon]")) found.add("the page has no icon, so browsers ask for /favicon.ico");
  return [...found];
};
