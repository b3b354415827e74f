// Text that is cut off or lies over other text, cards that overlap, and a page wider than its window.
() => {
  const found = [];
  const wide = document.documentElement;
  if (wide.scrollWidth > wide.clientWidth) found.push(`the page is ${wide.scrollWidth} wide in ${wide.clientWidth}`);
  const shown = (element) => element.checkVisibility({ visibilityProperty: true }) && !element.closest('.unseen, .skip, .state-word');
  for (const element of document.querySelectorAll('body *')) {
    if (element instanceof SVGElement || !shown(element)) continue;
    const style = getComputedStyle(element);
    if (style.overflowX === 'auto' || style.overflowX === 'scroll') continue;
    const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.nodeValue.trim());
    if (own && style.overflowX !== 'visible' && style.textOverflow !== 'ellipsis' && element.scrollWidth > element.clientWidth + 1) {
      found.push(`cut off: ${element.className} "${element.textContent.slice(0, 60)}"`);
    }
    if (own && style.display !== 'inline') {
      const box = element.getBoundingClientRect();
      const holder = element.closest('.card, .tile, .attention, header, .lead');
      if (holder && !element.closest('.table-box')) {
        const edge = holder.getBoundingClientRect();
        if (box.right > edge.right + 1 || box.left < edge.left - 1) found.push(`outside: "${element.textContent.slice(0, 60)}"`);
      }
    }
  }
  for (const chart of document.querySelectorAll('svg.chart')) {
    if (!shown(chart)) continue;
    const edge = chart.getBoundingClientRect();
    const texts = [...chart.querySelectorAll('text')].map((text) => [text.textContent, text.getBoundingClientRect()]).filter(([, box]) => box.width > 0);
    for (const [text, box] of texts) {
      if (box.right > edge.right + 1.5 || box.left < edge.left - 1.5 || box.top < edge.top - 2 || box.bottom > edge.bottom + 2) {
        found.push(`outside of its chart (${chart.getAttribute('aria-label')}): "${text}"`);
      }
    }
    texts.forEach(([text, a], i) => texts.slice(i + 1).forEach(([other, b]) => {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1.5 && down > 3.5) found.push(`"${text}" and "${other}" overlap (${chart.getAttribute('aria-label')})`);
    }));
  }
  for (const box of document.querySelectorAll('#replicas .table-box, .table-box.middle')) {
    if (box.scrollWidth > box.clientWidth + 1) found.push(`a table is ${box.scrollWidth} wide in ${box.clientWidth}: ${box.getAttribute('aria-label')}`);
  }
  const rows = (list) => list.map((element) => [element, element.getBoundingClientRect()]).filter(([, box]) => box.width && box.height);
  const cards = rows([...document.querySelectorAll('.card, .tile, .attention')]);
  cards.forEach(([one, a], i) => cards.slice(i + 1).forEach(([other, b]) => {
    if (one.contains(other)) return;
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (across > 1 && down > 1) found.push('two cards overlap');
  }));
  return found;
}
